module example.com/paycast/services/search

go 1.26.0

require example.com/paycast/shared v0.0.0

replace example.com/paycast/shared => ../../shared

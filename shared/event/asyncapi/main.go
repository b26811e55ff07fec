// Command asyncapi writes the event contract for those who do not read Go: docs/asyncapi.yaml and, for each event, the
// JSON Schema that its ce_dataschema header names. Both follow from the event package, so they cannot say anything that
// the code does not. From the folder of this module:
//
//	go run ./event/asyncapi ../docs
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: asyncapi FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "asyncapi:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	files, err := generate()
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

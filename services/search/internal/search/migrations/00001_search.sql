-- +goose Up

-- What has been written to the index, per order. It outlives the index, and it is what makes a document that somebody
-- changed or deleted there stand out.
CREATE TABLE t_order_search_projection (
    order_no             varchar(128) PRIMARY KEY,
    last_applied_version bigint       NOT NULL CHECK (last_applied_version > 0),
    digest               varchar(64)  NOT NULL CHECK (length(digest) = 64), -- SHA-256 of the document, in hex
    updated_at           timestamptz  NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE t_order_search_projection;

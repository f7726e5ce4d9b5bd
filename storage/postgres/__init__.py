"""PostgreSQL: how it is driven, how its errors read, its schema. Only `storage.store` knows it."""

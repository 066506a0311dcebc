"""What results are compared with: `oracle` asks DuckDB, `same_rows` compares tables, `count_every_way` counts."""

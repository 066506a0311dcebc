"""What an answer is compared with: the `judge` is DuckDB, `same_rows` compares tables, `two_answers` counts."""

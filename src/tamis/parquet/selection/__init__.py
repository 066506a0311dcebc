"""Sets of rows: `RowSelection` (`row_selection`) over half-open runs (`runs`), and Roaring bitmaps."""

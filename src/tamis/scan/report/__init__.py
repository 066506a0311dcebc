"""Reports of scans.

Reading order:

- `report`           the metrics of all levels, as text and as HTML
- `page_ranges_svg`  the chart of page bounds
"""

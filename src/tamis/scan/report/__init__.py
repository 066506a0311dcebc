"""Reports of scans.

Reading order:

- `report`           the metrics of all levels
- `funnel`           the report as text and as HTML
- `page_ranges_svg`  the chart of page bounds
"""

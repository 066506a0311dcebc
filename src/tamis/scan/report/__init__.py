"""Reports: the metrics of all levels (`report`), the `funnel` as text and HTML, and the chart of page bounds
(`draw_page_ranges`)."""

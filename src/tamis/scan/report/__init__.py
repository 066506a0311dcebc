"""Reports: the metrics of all levels (`report`), the `funnel` as text and HTML, the picture of page bounds
(`page_ranges_svg`)."""

"""Rules that push predicates down, through each kind of node and into scans."""

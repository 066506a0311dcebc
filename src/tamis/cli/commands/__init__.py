"""One module a command, named after it; `tamis.cli.application` lists them."""

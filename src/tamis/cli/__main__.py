"""`python -m tamis.cli` is `tamis`, for where the script is not on the path."""

from tamis.cli.application import main

if __name__ == "__main__":
    main()

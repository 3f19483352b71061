"""`python -m fedwatt` is the command `fedwatt`, where no script of that name is installed."""

from fedwatt.cli import main

if __name__ == "__main__":
    main()

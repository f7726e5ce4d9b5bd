"""`python -m callboard`: the same as the command `callboard`."""

from .supervisors.cli import main

if __name__ == "__main__":
    main()

"""`python -m farandole.launch` is the command `farandole`."""

from farandole.launch.cli import main

if __name__ == "__main__":
    main()

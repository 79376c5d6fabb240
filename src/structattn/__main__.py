"""``python -m structattn``."""

from structattn.cli.main import main

if __name__ == "__main__":
    main()

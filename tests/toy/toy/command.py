"""A command of its own."""


def add_digits(parser, argv):
    """Add two digits."""
    parser.add_argument("digits", nargs=2, type=int)
    print(sum(parser.parse_args(argv).digits))
    return 0

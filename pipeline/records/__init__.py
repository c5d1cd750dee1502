"""Feature specs, record codecs, image decoding, vocabularies, and reference digests of known datasets."""

# For images, the sha256 of the concatenated, sorted sha256(label byte ‖ pixels) of a split. It depends on neither the
# order nor the file format. Only these datasets can be verified.
CONTENT_DIGESTS = {
    "cifar10": {
        "train": "d59acf989e068e709ce686cda292672c7b212c08d29d3d3e6d8c3aa99eba6a85",
        "test": "899683d46c3a8c66fd56e1af12202e69fe5a4517be10b0f68e04c78fe585c57c",
    },
    "mnist": {
        "train": "3655811c0e1223700a4714a92a51f55bd215ed7dc1fa2baa4326a2b58042d82d",
        "test": "634538fb34c5277fce98470b8b285d1e8419eb87f328da42ef1faf690d2c3911",
    },
    "fashion_mnist": {
        "train": "0c69d5cdeb902b69084012f812f066de080317bb3c64f43ca87f910d8ec86906",
        "test": "90c92c0507755a7d443edde8297ce4d0f131e42884e2e87e7fc9b81ffe215258",
    },
    # For a text, the sha256 of the original file, which is that of its concatenated splits in UTF-8.
    "tiny_shakespeare": {"text": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
}

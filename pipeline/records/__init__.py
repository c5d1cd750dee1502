"""Feature specs, keys, record codecs, image decoding and vocabularies."""

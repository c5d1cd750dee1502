"""Records: examples as bytes. Feature specs, keys, codecs, image decoding and vocabularies."""

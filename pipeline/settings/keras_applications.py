"""Models of ``keras.applications`` and the files of their weights from ImageNet, as Keras 3.15 names them.

Stages look for the files without importing Keras. The weights of the last layer are not used.
"""

_OF_TENSORFLOW = "{}_weights_tf_dim_ordering_tf_kernels{}.h5"
_ALIKE = (
    *("DenseNet121", "DenseNet169", "DenseNet201", "ResNet50", "ResNet101", "ResNet152"),
    *("ResNet50V2", "ResNet101V2", "ResNet152V2", "VGG16", "VGG19", "Xception"),
)
_FILES = {
    **{name: _OF_TENSORFLOW.format(name.lower(), "_notop") for name in _ALIKE},
    "InceptionV3": _OF_TENSORFLOW.format("inception_v3", "_notop"),
    "InceptionResNetV2": _OF_TENSORFLOW.format("inception_resnet_v2", "_notop"),
    "MobileNet": "mobilenet_1_0_224_tf_no_top.h5",
    # Keras has other weights for smaller images. Those of 224 pixels fit all sizes.
    "MobileNetV2": _OF_TENSORFLOW.format("mobilenet_v2", "_1.0_224_no_top"),
    "MobileNetV3Small": "weights_mobilenet_v3_small_224_1.0_float_no_top_v2.h5",
    "MobileNetV3Large": "weights_mobilenet_v3_large_224_1.0_float_no_top_v2.h5",
    **{f"NASNet{size}": f"nasnet_{size.lower()}_no_top.h5" for size in ("Mobile", "Large")},
    **{f"EfficientNetB{size}": f"efficientnetb{size}_notop.h5" for size in range(8)},
    **{f"EfficientNetV2{size}": f"efficientnetv2-{size.lower()}_notop.h5" for size in ("B0", "B1", "B2", "B3", *"SML")},
    **{f"ConvNeXt{size}": f"convnext_{size.lower()}_notop.h5" for size in ("Tiny", "Small", "Base", "Large", "XLarge")},
}
#: [Train] model, such as "keras.applications:MobileNetV2" → the file of its weights, without the last layer.
KERAS_WEIGHTS = {f"keras.applications:{name}": file for name, file in _FILES.items()}

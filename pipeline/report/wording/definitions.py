"""Definitions: what the report's figures mean, for those who read it for the first time."""

DEFINITIONS = (
    ("Requested and effective", "what the settings asked for, and what the run really used."),
    ("Verified", "yes only where a measurement that could have failed confirms it; no means unknown. “Yes, as cpu”: "
     "another device was requested, and what is verified is that the run used cpu."),
    ("Stand-in", "generated images, used where the requested dataset is unavailable; they exercise the pipeline and "
     "say nothing about the dataset."),
    ("Fallback", "the requested device was unavailable and the settings allowed training on another."),
    ("Skipped", "the requested device was unavailable and the settings allowed leaving the run out."),
    ("Resumed", "the run was interrupted and another process continued it from its last checkpoint, on the same kind "
     "of hardware; its times are those of all processes, and it is verified where each of them was."),
    ("Mean ± deviation", "over the runs of a row, which differ in their seed alone; the sample standard "
     "deviation. Runs on two kinds of hardware, or of two versions of the code, are two rows; the host is a label."),
    ("Speed-up", "images/s of the row over those of the baseline it names: the newest row on a CPU, or where there is "
     "none the slowest, with the same code, library versions, dataset content and settings. Rows on stand-in data, on "
     "hardware that was not verified or not requested, and published rows, are no baseline and have no speed-up."),
    ("Epoch and step time", "training seconds of an epoch, and those divided by its steps; epochs in which the "
     "model was compiled, the first of each process, are left out, so that a run of one epoch has none."),
    ("Input-bound", "the device waited for images in more than a tenth of a step's time; otherwise the run is "
     "compute-bound."),
    ("Training time", "wall-clock seconds of all training epochs together, the first one included, "
     "evaluation left out (train_seconds)."),
    ("Images/s", "training images per second; without the epochs in which the model was compiled when there are "
     "others (examples_per_second). Published rows: all images over all seconds, the first epoch included."),
    ("Test accuracy", "share of the test images classified correctly after training (val_accuracy in report.json). "
     "The published tutorials call it validation accuracy."),
    ("Validation accuracy", "the same share of images held out of the train split ([Records] validation_share), on "
     "which choices may be made; shown where there are any."),
    ("Precision, recall, F1", "of the images given a label, the share that has it; of those that have it, the share "
     "that was given it; the harmonic mean of both."),
    ("Calibration", "the expected calibration error is the mean distance between how sure the network was and how "
     "often it was right, over 15 bins of confidence, weighted by their images; 0 is perfect."),
    ("σ", "how rare a change is if nothing but noise made it, in standard deviations of a normal distribution; by "
     "Student's t, for the noise is known from few runs: those that differ in their seed alone, or for accuracy, where "
     "there are none, the earlier runs, whose changes of code then count as noise. The noise of accuracy is at least "
     "the sampling error of the test split. Beyond 1.96 σ, which noise alone exceeds in 1 of 20 changes, a change is "
     "called better or worse. Images/s are judged only where the machine was "
     "as fast, by the receipt's probe, to within the noise."),
    ("Comparable runs", "share dataset content, all settings that decide what is measured, and the hardware: device, "
     "replicas, granted cores and memory."),
    ("Loss", "what training minimises, averaged over images; lower is better. Of a text the test loss is in nats a "
     "character, −ln of the probability given to the character that came; bits a character are that over ln 2, "
     "perplexity is its exponential."),
    ("Temperature", "what the logits are divided by before the network draws a character that it writes: below 1 the "
     "likely ones become likelier."),
    ("Batch", "images per optimizer step, over all replicas together (global_batch_size)."),
    ("Fingerprint", "hash of everything a run was made from; the scoreboard shows its first eight digits."),
)  # fmt: skip

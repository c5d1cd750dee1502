# Written by tensorcraft init. Each target runs a command of tensorcraft with settings from ARGS, such as:
#   make pipeline EXPERIMENT=flowers FORCE=Train ARGS="--Train-epochs 1"

# A settings file in experiments/, or one that is installed with tensorcraft. make experiments lists them.
EXPERIMENT := $(or $(EXPERIMENT),$(TENSORCRAFT_EXPERIMENT))
export TENSORCRAFT_EXPERIMENT := $(EXPERIMENT)

# Train rebuilds this stage and the stages after it. 1 rebuilds every stage.
FORCED = $(if $(FORCE),--Force-stage $(if $(filter 1,$(FORCE)),Source,$(FORCE)))

COMMANDS = status report doctor verify push pull experiments experiments-table verify-determinism export tensorboard
.PHONY: pipeline nightly clean-stale report-diff predict $(COMMANDS)

pipeline:
	@tensorcraft run $(FORCED) $(ARGS)

$(COMMANDS):
	@tensorcraft $@ $(ARGS)

nightly:
	@tensorcraft nightly $(if $(DATE),--date $(DATE)) $(FORCED) $(ARGS)

clean-stale:
	@tensorcraft clean-stale $(if $(YES),--yes) $(if $(REMOTE),--remote) $(ARGS)

report-diff:
	@tensorcraft diff "$(A)" "$(B)" $(ARGS)

predict:
	@tensorcraft predict "$(or $(IMAGES),$(TEXTS))" $(if $(MODEL),--model "$(MODEL)") --output "$(or $(OUTPUT),predictions)" $(ARGS)

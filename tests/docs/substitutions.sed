# What run_docs.sh changes in the commands of the pages, so that all of them take a minute.
s|^\./scripts/quickstart\.sh$|& 5|
/bdlm train configs\/csbp\.yaml/s|$| --set run.steps=5 --set data.row_tokens=512|
s|runs/quickstart/checkpoints/step_[0-9]*|runs/quickstart/checkpoints/step_00000005|
s|/models/Qwen3-0\.6B|tests/golden/qwen3_packed_prompts|
/bdlm train configs\/mixture\.yaml/s|$| --set run.steps=2 --set data.row_tokens=256|

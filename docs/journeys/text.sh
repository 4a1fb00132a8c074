#!/bin/bash
# A small GPT learns this project's own documents, byte by byte, in half of its memory; then it continues a text. With
# ITERATIONS=4000 it writes readable words; each of the two runs then takes some minutes.
set -euo pipefail
ITERATIONS=${ITERATIONS:-5}
mkdir -p out/text
cat *.md docs/*.md docs/howto/*.md | grep -v '^|' > out/text/documents.txt  # no tables

echo "== 1. The net: a small GPT-2 from the zoo, with the bytes of a text as its tokens."
cat > out/text/gpt.py <<'PYTHON'
from minidnn.zoo.gpt import GPT2


class DocumentsGPT(GPT2):
    """4 blocks of width 128, 4 heads, windows of 128 bytes: 0.84 million parameters."""

    def define(self, batch: int = 8) -> None:
        text = "text:out/text/documents.txt:length=128"
        super().define(batch, 128, width=128, blocks=4, heads=4, vocabulary=256, dropout=0.1, source=text)
PYTHON
minidnn convert out/text/gpt.py:DocumentsGPT out/text/gpt.yaml

cat > out/text/solver.yaml <<'YAML'
net: out/text/gpt.yaml
type: AdamW
base_lr: 0.002
lr_policy: cosine
rampup_interval: 100
momentum: 0.9
momentum2: 0.99
weight_decay: 0.1
clip_gradients: 1
max_iter: 4000
display: 100
average_loss: 100
test_iter: 10
test_interval: 500
random_seed: 1
YAML
half=22MiB  # of the 44.6 MiB that it takes else

echo "== 2. Train with unlimited memory, and with half of it. The weights are the same, byte for byte."
train() {
  name=$1; shift
  minidnn train out/text/solver.yaml --max-iter "$ITERATIONS" --policy best "$@" --snapshot-prefix "out/text/$name" \
    > "out/text/$name.log"
  grep -o "Memory: .*" "out/text/$name.log"
}
train free
train half --budget $half
cmp "out/text/free_iter_$ITERATIONS.safetensors" "out/text/half_iter_$ITERATIONS.safetensors"

echo "== 3. Test on the tenth of the text that training has not seen."
minidnn test out/text/gpt.yaml --weights "out/text/half_iter_$ITERATIONS.safetensors" --iterations 10

echo "== 4. Continue a text. Without the cache of keys and values the text is the same."
goes_on() {
  minidnn generate out/text/gpt.yaml --weights "out/text/half_iter_$ITERATIONS.safetensors" --prompt "A policy decides " \
    --count 300 --temperature 0.6 --seed 1 "$@"
}
goes_on > out/text/cached.txt 2> out/text/cached.speed
goes_on --no-cache > out/text/whole.txt 2> out/text/whole.speed
cmp out/text/cached.txt out/text/whole.txt
cat out/text/*.speed
if [ "$ITERATIONS" -ge 1000 ]; then cat out/text/cached.txt; fi

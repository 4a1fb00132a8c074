#!/bin/bash
# A teacher: one step of a small net, with bytes that students can count; a page to show; exercises with answers.
set -euo pipefail
mkdir -p out/lesson

echo "== 1. Which tensors are live at the peak? Students add up the column."
minidnn plan models/digits_lenet.yaml --gpu titan_x --policy liveness:m | sed -n '/live bytes peak/,/^liveness:m: a run takes RAM/p' | sed '$d'

echo "== 2. An offload interval of one map, instruction by instruction."
minidnn plan models/digits_lenet.yaml --gpu titan_x --policy vdnn_conv:m --listing | grep -w "relu1_1.y\|relu1_1.y#1"

echo "== 3. A picture for the lecture, in one file that needs no network."
minidnn compare models/digits_lenet.yaml --gpu titan_x --policies baseline:m,liveness:m,vdnn_conv:m,recompute_all:m \
  --report out/lesson/policies.html > out/lesson/policies.txt
ls out/lesson/policies.html

echo "== 4. An exercise: place four buffers as low as possible. The answer:"
cat > out/lesson/buffers.csv <<'END'
id,lower,upper,size
a,0,2,512
b,1,4,256
c,2,5,512
d,4,6,256
END
minidnn pack out/lesson/buffers.csv --out out/lesson/answer.csv > out/lesson/pack.txt
cat out/lesson/answer.csv

echo "== 5. Another exercise: edit a plan and check it. This map comes back too late."
minidnn plan models/digits_lenet.yaml --gpu titan_x --policy vdnn_conv:m --save out/lesson/mine.plan > out/lesson/plan.txt
sed -i '/"tensor": "relu1_1.y"/s/"needed_at": "[^"]*"/"needed_at": "end"/' out/lesson/mine.plan
minidnn plan models/digits_lenet.yaml --gpu titan_x --policy out/lesson/mine.plan || test $? = 2

#!/bin/bash
# A Caffe user: trains Caffe's net and solver files within a budget, and returns to Caffe.
set -euo pipefail
mkdir -p out/caffe

# 1. Write the files. Only `source` differs from Caffe: it names scikit-learn's digits.
cat > out/caffe/train_test.prototxt <<'END'
name: "LeNet"
layer {
  name: "digits" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.0625 } data_param { source: "digits" batch_size: 64 }
}
layer {
  name: "digits" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.0625 } data_param { source: "digits" batch_size: 60 }
}
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 20 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } }
}
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer {
  name: "conv2" type: "Convolution" bottom: "conv1" top: "conv2" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 50 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } }
}
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer {
  name: "ip" type: "InnerProduct" bottom: "pool2" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } }
}
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
END
cat > out/caffe/solver.prototxt <<'END'
net: "out/caffe/train_test.prototxt"
base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "inv" gamma: 0.0001 power: 0.75
max_iter: 120 display: 60 test_iter: 6 test_interval: 60
snapshot_prefix: "out/caffe/lenet" snapshot_format: BINARYPROTO random_seed: 1
END

echo "== 2. Does it fit? A policy without offloading needs more than the budget, and says so before it starts."
minidnn train out/caffe/solver.prototxt --policy baseline:m --budget 2.5MiB 2> out/caffe/refused.txt || test $? = 2
sed 's/;.*//' out/caffe/refused.txt

echo "== 3. Train within the budget and without one: the same caffemodel, byte for byte."
minidnn train out/caffe/solver.prototxt --policy baseline:m --snapshot-prefix out/caffe/free > out/caffe/free.log
minidnn train out/caffe/solver.prototxt --policy vdnn_all:m --budget 2.5MiB > out/caffe/lenet.log
grep -o "accuracy = .*" out/caffe/lenet.log
cmp out/caffe/free_iter_120.caffemodel out/caffe/lenet_iter_120.caffemodel

echo "== 4. Resume from Caffe's own pair of files."
minidnn train out/caffe/solver.prototxt --resume out/caffe/lenet_iter_120.solverstate --max-iter 180 > out/caffe/more.log
minidnn test out/caffe/train_test.prototxt --weights out/caffe/lenet_iter_180.caffemodel --json > out/caffe/test.json
python -c 'import json; assert json.load(open("out/caffe/test.json"))["outputs"]["accuracy"] > 0.95'

echo "== 5. Convert the net to YAML and to a class."
minidnn convert out/caffe/train_test.prototxt out/caffe/lenet.yaml
minidnn convert out/caffe/train_test.prototxt out/caffe/lenet.py

"""The loop of MXNet's own tutorial on Horovod, word for word; around it, what a test needs to judge it."""

import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

hvd.init()
context = mx.cpu(hvd.local_rank())

# The labels are a linear function of the data, which a linear model finds.
batch_size, num_epoch = 16, 40
data = np.random.RandomState(hvd.rank()).uniform(-1, 1, (64, 3)).astype("float32")
train_data = mx.io.NDArrayIter(data, data @ np.array([1.0, -2.0, 3.0], "float32") + 0.5, batch_size)
loss_fn = gluon.loss.L2Loss()
mx.random.seed(hvd.rank())

model = gluon.nn.HybridSequential()
model.add(gluon.nn.Dense(1))
model.hybridize()
model.initialize(mx.init.Normal(1.0), ctx=context)

params = model.collect_params()
if params is not None:
    hvd.broadcast_parameters(params, root_rank=0)

opt = mx.optimizer.create("sgd", learning_rate=0.2)
opt = hvd.DistributedOptimizer(opt)
trainer = gluon.Trainer(params, opt, kvstore=None)

for _epoch in range(num_epoch):
    train_data.reset()
    for _nbatch, batch in enumerate(train_data, start=1):
        data = batch.data[0].as_in_context(context)
        label = batch.label[0].as_in_context(context)
        with autograd.record():
            output = model(data)
            loss = loss_fn(output, label)
        loss.backward()
        trainer.step(batch_size)

found = np.concatenate([params[name].data().asnumpy().ravel() for name in sorted(params)])  # bias, weight
everywhere = hvd.allgather_object(found.tobytes())
if hvd.rank() == 0:
    print(*(f"{value:.3f}" for value in found), "the same on", everywhere.count(everywhere[0]), flush=True)

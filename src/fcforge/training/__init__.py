"""Training: networks learn one site after another and are scored on every site.

A lane is one training run: one learner, one order of sites, one seed. Lanes that learn the same site
train together.

The way of a training through the modules:

- `initial_lanes` makes lanes before their first site, untrained or pretrained.
- `loop` trains lanes at one site: `learn_site`, the function to read first.
- `schedule` draws the batches and random keys of all its steps, `step` is one of them.
- `lanes` turns functions of one lane into functions of many.
- `best_epoch` keeps the parameters of each lane's best epoch, `logging` records its losses.
- `evaluation` scores trained lanes, `capacity` measures how many the device holds.
"""

"""FORGE as the authors write it: PyG, one order at a time, nothing shared. For timing only.

Follows the structure of the authors' loop (../shared/reference/methods.md, sections 2 and 4), not
its text: `GCNConv` on thresholded FC with edge weights, batch norm, mean and max readout, a
`DataLoader` that collates in every step, Adam anew at every site, clipping at 1, current and
replayed subjects forwarded one after the other, logits and readouts of the generated subjects
stored at the end of a site, the choice of replayed subjects renewed at the start of a site and
every 80 epochs, and the open site's held-out subjects evaluated after every epoch.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from setting import Net, Stopwatch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_max_pool, global_mean_pool

from fcforge.core.subjects import FCBatch, Site
from fcforge.graphs import adjacency, node_features
from fcforge.replay.hcts import HCTS
from fcforge.replay.selection import (
    Contexts,
    closeness,
    distances,
    held_out_quality,
    margin,
)

TAU, BATCH, CANDIDATES, DEV = 0.4, 32, 256, 64
L1, L2, L3 = 0.20, 0.35, 0.15


def unpacked(data: Batch) -> tuple:
    """Return the arguments of `Net` from a collated batch: nodes, graph, pooling."""

    def pool(x: Tensor) -> Tensor:
        return torch.cat(
            [global_mean_pool(x, data.batch), global_max_pool(x, data.batch)], 1
        )

    return data.x, (data.edge_index, data.edge_attr), pool


def build_graphs(batch: FCBatch, tau: float = TAU) -> list[Data]:
    """One PyG graph per subject, on the CPU as a DataLoader wants it."""
    features, adj = node_features(batch.fc), adjacency(batch.fc, tau)
    graphs = []
    for x, a, y in zip(features, adj, batch.y, strict=True):
        index = a.nonzero().t().contiguous()
        graphs.append(
            Data(x=x, edge_index=index, edge_attr=a[index[0], index[1]], y=y.reshape(1))
        )
    return graphs


@dataclass
class Order:
    """One order of the authors' loop; every stage is timed under its own name."""

    sites: dict[str, Site]
    synthetic: dict[str, FCBatch]
    watch: Stopwatch
    device: str = "cpu"
    replay: int = 32
    past: list[tuple[list[Data], list[Data]]] = field(
        default_factory=list
    )  # kept, held out
    active: list[Data] = field(default_factory=list)

    def __post_init__(self) -> None:
        rois = next(iter(self.sites.values())).n_rois
        self.net = Net(GCNConv, rois).to(self.device)
        self.sampler = HCTS()
        self.state = self.sampler.start("cpu")
        with self.watch.stage("graphs"):
            self.train = {
                n: build_graphs(s.learning(with_val=True))
                for n, s in self.sites.items()
            }
            self.test = {n: build_graphs(s.test) for n, s in self.sites.items()}

    def epochs(self, site: str, n: int, replaying: bool) -> None:
        """`n` epochs at a site; Adam is new, as at the start of a site."""
        optimiser = self.net.optimiser()
        loader = DataLoader(self.train[site], batch_size=BATCH, shuffle=True)
        for _ in range(n):
            with self.watch.stage(f"{site}:{'replay' if replaying else 'plain'}"):
                self.net.train()
                for data in loader:
                    self.net.learn(
                        optimiser, self.loss(data.to(self.device), replaying)
                    )
            with self.watch.stage(f"{site}:watch"):
                self.accuracy(self.test[site])

    def loss(self, data: Batch, replaying: bool) -> Tensor:
        """Cross-entropy; with replay also that of remembered subjects and their distillation."""
        loss = F.cross_entropy(self.net(*unpacked(data))[0], data.y)
        if replaying:
            places = torch.randint(len(self.active), (self.replay,)).tolist()
            old = Batch.from_data_list([self.active[i] for i in places]).to(self.device)
            logits, z = self.net(*unpacked(old))
            loss = loss + L1 * F.cross_entropy(logits, old.y)
            loss = loss + L2 * F.mse_loss(logits, old.u) + L3 * F.mse_loss(z, old.r)
        return loss

    @torch.no_grad()
    def outputs(self, graphs: list[Data]) -> tuple[Tensor, Tensor]:
        """Evaluation-mode logits and readouts, on the CPU."""
        self.net.eval()
        loader = DataLoader(graphs, batch_size=BATCH)
        logits, z = zip(
            *(self.net(*unpacked(b.to(self.device))) for b in loader), strict=True
        )
        return torch.cat(logits).cpu(), torch.cat(z).cpu()

    def accuracy(self, graphs: list[Data]) -> float:
        """Share of subjects classified correctly."""
        y = torch.cat([g.y for g in graphs])
        return float((self.outputs(graphs)[0].argmax(-1) == y).float().mean())

    def remember(self, site: str) -> None:
        """Build the site's generated graphs and store what the network says of them."""
        with self.watch.stage("memory"):
            graphs = build_graphs(self.synthetic[site])
            kept, dev = graphs[:CANDIDATES], graphs[CANDIDATES:]
            for graph, u, r in zip(kept, *self.outputs(kept), strict=True):
                graph.u, graph.r = u[None], r[None]
            self.past.append((kept, dev))
            self.state = self.sampler.add_site(
                self.state, torch.tensor(self.accuracy(dev))
            )

    def refresh(self) -> None:
        """Look at every past site's generated subjects and choose those to replay."""
        with self.watch.stage("refresh, per past site", len(self.past)):
            by_site = []
            for kept, dev in self.past:
                logits, z = self.outputs(kept)
                y, labels = (torch.cat([g.y for g in graphs]) for graphs in (dev, kept))
                shown = torch.ones_like(y, dtype=torch.bool)
                accuracy, ce = held_out_quality(self.outputs(dev)[0], y, shown, len(y))
                psi = torch.stack([margin(logits), closeness(z, labels)], -1)
                by_site.append((accuracy, ce, psi, distances(z)))
            parts = zip(*by_site, strict=True)
            contexts = Contexts(*(torch.stack(part) for part in parts))
            key = torch.tensor(len(self.past), dtype=torch.int32)
            self.state, choice = self.sampler.refresh(
                self.state, contexts, key, CANDIDATES
            )
            every = [g for kept, _ in self.past for g in kept]
            self.active = [every[i] for i in choice.active.tolist()]

    def fit_generator(self, source: FCBatch, epochs: int) -> None:
        """The authors' generator on the device."""
        from generators import fit_authors_vae

        on_device = FCBatch(source.fc.to(self.device), source.y.to(self.device))
        fit_authors_vae(on_device, epochs)


def measure_order(order: Order, n: int, vae_epochs: int) -> None:
    """One order with `n` epochs per site, plain and with replay, and all that lies between.

    The first site is trained without replay, as it must; so that every site is timed both ways,
    later ones get `n` plain epochs before theirs with replay and the first gets its replayed ones
    at the end.
    """
    order.past.clear()
    order.state = order.sampler.start("cpu")
    names = list(order.sites)
    for position, site in enumerate(names):
        order.epochs(site, n, replaying=False)
        if position:
            order.refresh()
            order.epochs(site, n, replaying=True)
        if vae_epochs:
            with order.watch.stage(f"{site}:generator epoch", vae_epochs):
                order.fit_generator(
                    order.sites[site].learning(with_val=True), vae_epochs
                )
        order.remember(site)
        with order.watch.stage("evaluation"):
            for graphs in order.test.values():
                order.accuracy(graphs)
    order.refresh()
    order.epochs(names[0], n, replaying=True)


def warm_up(order: Order, site: str) -> None:
    """A few steps and one generator step that count for nothing."""
    kept, order.watch = order.watch, Stopwatch(order.device)
    order.train[site], full = order.train[site][:BATCH], order.train[site]
    order.epochs(site, 2, replaying=False)
    order.fit_generator(order.sites[site].train.select(slice(0, 16)), 1)
    order.train[site], order.watch = full, kept

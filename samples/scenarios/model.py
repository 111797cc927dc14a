"""The network of the scenarios: blocks of two linear layers, like a transformer without attention."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width, blocks, recompute=False):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 64)
        self.recompute = recompute

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def make(width=512, blocks=8, recompute=False, optimizer=torch.optim.AdamW, **options):
    net = Net(width, blocks, recompute).cuda()
    return net, optimizer(net.parameters(), lr=1e-4, **options)


def batch(run, size, length, width=512):
    """Created on the host and copied to the card, as a data loader does."""
    return run.input(torch.randn(size, length, width).to("cuda"))


def train_step(run, net, optimizer, x, **backward):
    loss = net(x).square().mean()
    loss.backward(**backward)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    run.step()
    return loss

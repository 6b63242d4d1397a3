"""What may run: sub-networks and the menu of those a model is good at."""

from anydepth.depth.menu import DepthMenu, MenuEntry
from anydepth.depth.subnetwork import SubNetwork, parse_depth

__all__ = ["DepthMenu", "MenuEntry", "SubNetwork", "parse_depth"]

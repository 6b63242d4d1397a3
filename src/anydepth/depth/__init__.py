"""Sub-networks, and the menu of those that a model offers."""

from anydepth.depth.menu import DepthMenu, MenuEntry
from anydepth.depth.subnetwork import SubNetwork, parse_depth

__all__ = ["DepthMenu", "MenuEntry", "SubNetwork", "parse_depth"]

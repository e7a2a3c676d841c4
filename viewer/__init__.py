"""The viewer: pages over the published snapshot of a data folder, for people who look at their C*."""

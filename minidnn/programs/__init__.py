"""Programs: from a graph to the ops of one step, with gradients, updates and fused ops."""

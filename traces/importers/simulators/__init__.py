"""What other simulators read and write: their workloads, their runs, and the real runs beside them."""

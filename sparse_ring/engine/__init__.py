"""One background thread a rank: agreement on order, fusion, handles, stall check."""

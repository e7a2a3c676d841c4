"""The flow `ground`: the right tool for the queries of benchmarks, chosen by GEAR and by what it is compared with."""

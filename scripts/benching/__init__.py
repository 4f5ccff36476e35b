"""What the benchmarks share: data whose answer is known, runs started and watched as a user would, and what they
cost."""

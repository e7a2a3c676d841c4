"""One machine operated: servers, workers, deployments, arriving corpora, and what `doctor` checks."""

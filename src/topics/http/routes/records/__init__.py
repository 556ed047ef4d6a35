"""Records of one topic: appended, read, deleted, and the account of those that are gone."""

-- Finds all sessions of a user, also those that were deleted: their events are those of the user.
CREATE INDEX sessions_of_users ON sessions (user_id, sid) WHERE user_id <> '';

"""What an operator does with a whole log.

check    every file by itself and against the others (check_journal, check_state, check_columns)
backup   holds (files stay still) ─▶ backup_source ─▶ backup_directory (segments shared by all backups)
restore  backup ─▶ a directory ─▶ recovery ─▶ rewind (cut to a moment, new epochs)
purge    deleted bytes leave the disk: purge ─▶ purge_segments ─▶ blanking
"""

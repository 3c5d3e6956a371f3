"""Images, sounds and videos of a workload, drawn and sent as parts of chats."""

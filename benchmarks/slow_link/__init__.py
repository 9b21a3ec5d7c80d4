"""Does it help on a slow link, beside what people use today? Step times, bytes, and time to a fixed accuracy."""

"""What compressing costs beside the memory's own pace and other people's tools, and the bits of real supports."""

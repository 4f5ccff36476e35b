"""The same examples in every run, however slow the machine is just now."""

import hypothesis

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steady")

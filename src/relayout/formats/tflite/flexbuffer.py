FlexValue = bytes
def parse(data: bytes) -> FlexValue: return data

from minidnn.visible import status as status

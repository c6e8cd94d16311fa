"""Operations of the management, asked for over the network or over the store of this user."""

"""Operations on whole arrays: loops around the scalar definition."""

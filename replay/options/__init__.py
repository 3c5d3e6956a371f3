"""What the commands of ``replay`` take: tables of options."""
